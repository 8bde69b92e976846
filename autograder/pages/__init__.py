"""What people read of reports: feedback pages, files of grades, similar answers side by side."""
